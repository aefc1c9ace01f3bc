// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package translate converts parts of a CRI config to arguments for a shim and the kernel, and returns errors for values that
// they do not accept. It changes nothing on the host, and reads only the host's user database.
//
// Test kit: none is needed; the results depend only on the arguments.
package translate
