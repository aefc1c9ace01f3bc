// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package driver

import (
	"context"
	"errors"
	"fmt"
)

func openTree(string, Options) (tree, Host, error) {
	return nil, Host{}, fmt.Errorf("cgroups are of Linux: %w", errors.ErrUnsupported)
}

func openSystemd(context.Context, creator, names, Host, Options) (creator, error) {
	return nil, fmt.Errorf("systemd is of Linux: %w", errors.ErrUnsupported)
}
