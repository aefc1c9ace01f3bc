// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The errors that reach the status of a pod never have a path of the host.
func TestSanitizeErrorOmitsHostPaths(t *testing.T) {
	for want, cause := range map[string]error{
		"permission denied":         syscall.EACCES,
		"context canceled":          context.Canceled,
		"context deadline exceeded": context.DeadlineExceeded,
		"unsupported operation":     errors.ErrUnsupported,
		"internal error":            errors.New("unknown"),
	} {
		err := fmt.Errorf("open /var/lib/kubelet/pods: %w", &fs.PathError{Op: "open", Path: "/var/lib/kubelet/secret", Err: cause})
		require.EqualError(t, sanitizeError(err), want)
	}
}
