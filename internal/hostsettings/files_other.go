// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hostsettings

import (
	"errors"
	"fmt"
)

// joinCgroup returns an error: only Linux is supported.
func joinCgroup(string, string) error { return fmt.Errorf("cgroups: %w", errors.ErrUnsupported) }

// setOpenFiles returns an error: only Linux is supported.
func setOpenFiles(uint64) error { return fmt.Errorf("limit of open files: %w", errors.ErrUnsupported) }
