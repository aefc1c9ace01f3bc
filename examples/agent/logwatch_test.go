// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logFile is what the files of a log are called: the current one, and rotated ones, compressed or about to be.
var logFile = regexp.MustCompile(`^0\.log(\.\d{8}-\d{6}(_\d{3})?(\.gz|\.tmp)?)?$`)

// logWatch is what was seen of the log of a pod's container.
type logWatch struct {
	t          *testing.T
	pattern    string // of the files
	seen       map[string]bool
	most       int64 // bytes at one time
	compressed bool
}

func (f files) watchLog(pod string) *logWatch {
	return &logWatch{t: f.t, pattern: filepath.Join(f.logs, "*_"+pod+"_*", "main", "*"), seen: map[string]bool{}}
}

// look takes in what there is now.
func (w *logWatch) look() {
	w.t.Helper()
	paths, err := filepath.Glob(w.pattern)
	require.NoError(w.t, err)
	var sum int64
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue // it was renamed or removed
		}
		require.Regexp(w.t, logFile, info.Name())
		w.seen[strings.TrimSuffix(strings.TrimSuffix(info.Name(), ".gz"), ".tmp")] = true
		w.compressed = w.compressed || strings.HasSuffix(path, ".gz")
		sum += info.Size()
	}
	w.most = max(w.most, sum)
}
