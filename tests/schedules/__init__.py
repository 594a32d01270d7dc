"""Tests of aotrain.schedules."""
