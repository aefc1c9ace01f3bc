// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package isolated

// Run returns what run does: this system has no namespaces.
func Run(run func() int) int { return run() }
