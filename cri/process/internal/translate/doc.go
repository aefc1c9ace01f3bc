// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package translate turns parts of a CRI config into what a shim and the kernel take, and names what they cannot take. It
// changes nothing on the host, and asks it for its users only.
//
// Test kit: none; all is a function of its arguments.
package translate
