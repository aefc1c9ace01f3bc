// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package mountns

import "errors"

// Enter returns [errors.ErrUnsupported], because mount namespaces exist on Linux only.
func Enter([]Mount, string) error { return errors.ErrUnsupported }
