// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package flow

import (
	"errors"
	"syscall"
)

// canReadSocket is true if readSocket works on this platform.
const canReadSocket = false

func readSocket(syscall.RawConn) (*[bufferSize]byte, int, error) {
	return nil, 0, errors.ErrUnsupported
}
