// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cni

import "os/exec"

// runGroup runs a command and kills it when its context ends. Children of the command are on their own.
func runGroup(cmd *exec.Cmd) error { return cmd.Run() }
