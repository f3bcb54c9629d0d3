"""Tests of user functions: one step of a program, run by hand."""

from __future__ import annotations

from tidegate.testing.clock import ManualClock
from tidegate.testing.harness import HarnessSnapshot, OperatorHarness
from tidegate.testing.replay import ReplayBundle, Replayed

__all__ = ["HarnessSnapshot", "ManualClock", "OperatorHarness", "ReplayBundle", "Replayed"]
