// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package rmtree

import "os"

func removeTree(path string) error { return os.RemoveAll(path) }
