// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package httpprobe

import "net"

// isUnchanged returns false, so that connections are not reused. This platform cannot show whether the server has closed an idle
// connection.
func isUnchanged(net.Conn) bool { return false }
