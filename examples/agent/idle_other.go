// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

// unmapProgram does nothing: other kernels do as they like.
func unmapProgram() error { return nil }
