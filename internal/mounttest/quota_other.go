// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package mounttest

import (
	"errors"
	"testing"
)

func mountQuotaFS(t testing.TB) (string, bool) {
	t.Helper()
	t.Skip("this is not Linux")
	return "", false
}

func writeLimited(testing.TB, string, int) error { return errors.ErrUnsupported }
