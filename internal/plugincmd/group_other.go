// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package plugincmd

import "os/exec"

// Run runs a command and kills it when its context ends. Children of the command are on their own.
func Run(cmd *exec.Cmd, _ bool) error { return cmd.Run() }
