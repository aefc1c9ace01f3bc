// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package notexist_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/notexist"
)

func TestIgnore(t *testing.T) {
	other := errors.New("no space left on device")
	require.NoError(t, notexist.Ignore(nil))
	require.NoError(t, notexist.Ignore(os.Remove(filepath.Join(t.TempDir(), "a"))))
	require.NoError(t, notexist.Ignore(fmt.Errorf("remove record: %w", fs.ErrNotExist)))
	require.Equal(t, other, notexist.Ignore(other))
}
