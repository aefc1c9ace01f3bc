// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package usage

// isExited returns false: only Linux has /proc.
func isExited(error) bool { return false }
