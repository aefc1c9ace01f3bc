// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package memreturn

// unmapProgram does nothing. Only Linux can drop unmodified pages of a file by madvise.
func unmapProgram() error { return nil }
