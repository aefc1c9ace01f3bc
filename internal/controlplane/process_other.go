// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controlplane

import "syscall"

// killWithParent returns nil: on this operating system, the processes of a killed test continue to run.
func killWithParent() *syscall.SysProcAttr { return nil }
