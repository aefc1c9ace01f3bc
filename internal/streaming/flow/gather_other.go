// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package flow

import (
	"errors"
	"syscall"
)

// canGather reports whether gather works here.
const canGather = false

func gather(syscall.RawConn) (*[size]byte, int, error) { return nil, 0, errors.ErrUnsupported }
