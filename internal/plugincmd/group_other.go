// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package plugincmd

import "os/exec"

// Run runs cmd and waits until it exits. If the context of cmd ends first, Run kills the process, but not its children. The
// second parameter is ignored.
func Run(cmd *exec.Cmd, _ bool) error { return cmd.Run() }
