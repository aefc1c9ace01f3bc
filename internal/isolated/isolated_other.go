// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package isolated

// again returns that this system has no namespaces.
func again(Kind) (code int, ok bool) { return 0, false }
