// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package httpprobe

import "net"

// isUnchanged returns false: this platform cannot show what happened to an idle connection, so it is not reused.
func isUnchanged(net.Conn) bool { return false }
