// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package intree

import (
	"context"
	"errors"

	"github.com/seed81659283/nodeagent/volume"
)

func (*node) statFilesystem(context.Context, string) (volume.Usage, error) {
	return volume.Usage{}, errors.ErrUnsupported
}

func fileGroup(string) (int64, error) { return 0, errors.ErrUnsupported }
