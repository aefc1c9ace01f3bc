// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package csi

// hasSELinuxLabels returns false: SELinux is for Linux only.
func hasSELinuxLabels(string) bool { return false }
