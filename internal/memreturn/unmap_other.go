// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package memreturn

// unmapProgram does nothing: other kernels have no madvise that drops clean file pages.
func unmapProgram() error { return nil }
