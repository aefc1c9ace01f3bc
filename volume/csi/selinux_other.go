// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package csi

// hasSELinuxLabels reports that there are none.
func hasSELinuxLabels(string) bool { return false }
