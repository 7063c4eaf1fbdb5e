"""The policy decision point: releases held against rules and history."""
