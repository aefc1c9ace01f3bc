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
	return nil, Host{}, fmt.Errorf("cgroups require Linux: %w", errors.ErrUnsupported)
}

func openSystemd(context.Context, creator, names, Host, Options) (creator, error) {
	return nil, fmt.Errorf("systemd requires Linux: %w", errors.ErrUnsupported)
}
