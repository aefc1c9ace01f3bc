// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package httpprobe

import "net"

// isUnchanged always returns false, so that connections are not reused. On this platform it is unknown whether the server
// has closed an idle connection.
func isUnchanged(net.Conn) bool { return false }
