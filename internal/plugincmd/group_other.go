// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package plugincmd

import "os/exec"

// Run runs a command and kills it when its context ends. It does not kill children of the command.
func Run(cmd *exec.Cmd, _ bool) error { return cmd.Run() }
