// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cnitest

// Main returns at once. Scripted plugins exist only on Linux.
func Main() {}
