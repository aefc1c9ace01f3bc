// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controlplane

import "syscall"

// killWithParent returns nil: without such a signal, a killed test leaves its processes running.
func killWithParent() *syscall.SysProcAttr { return nil }
