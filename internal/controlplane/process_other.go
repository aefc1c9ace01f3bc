// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controlplane

import "syscall"

// endWithParent does nothing: where there is no such signal, a test that is killed leaves its processes behind.
func killWithParent() *syscall.SysProcAttr { return nil }
