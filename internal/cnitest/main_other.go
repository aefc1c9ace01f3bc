// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cnitest

// Main plays the plugin if this process was started as one. On this system there are no plugins, and it returns.
func Main() {}
