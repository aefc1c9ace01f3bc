// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// With these environment variables the test binary writes versions of a file until it is killed.
const (
	envPath = "ATOMICFILE_TEST_PATH"
	envFrom = "ATOMICFILE_TEST_FROM"
)

func TestMain(m *testing.M) {
	path := os.Getenv(envPath)
	if path == "" {
		os.Exit(m.Run())
	}
	from, err := strconv.Atoi(os.Getenv(envFrom))
	for n := from; err == nil; n++ {
		if err = atomicfile.WriteFile(path, content(n), 0o600); err == nil {
			fmt.Println(n)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A writer that is killed at any moment leaves a complete file, not older than the last version that it reported.
func TestKilledWriterLeavesCompleteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	const rounds = 40
	last, torn := 0, 0
	for range rounds {
		writer := exec.CommandContext(t.Context(), os.Args[0])
		writer.Env = append(os.Environ(), envPath+"="+path, envFrom+"="+strconv.Itoa(last+1))
		writer.Stderr = os.Stderr
		stdout, err := writer.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, writer.Start())

		lines := bufio.NewScanner(stdout)
		require.True(t, lines.Scan())
		time.Sleep(rand.N(4 * time.Millisecond)) // kills the writer during a write, which takes up to about 4 ms
		require.NoError(t, writer.Process.Kill())
		reported := lines.Text()
		for lines.Scan() {
			reported = lines.Text()
		}
		_ = writer.Wait()

		n, err := strconv.Atoi(reported)
		require.NoError(t, err)
		last = readVersion(t, path)
		assert.GreaterOrEqual(t, last, n, "the file has at least the last reported version")
		if len(listNames(t, dir)) > 1 {
			torn++
		}
		require.NoError(t, atomicfile.Clean(path))
		require.Equal(t, []string{"state"}, listNames(t, dir))
	}
	t.Logf("%d of %d writers were killed in the middle of a write", torn, rounds)
	assert.NotZero(t, torn, "no writer was killed in the middle of a write: the test has checked nothing")
}

// A full disk, simulated by a file size limit, keeps the old content and leaves no temporary file.
func TestFullDiskKeepsOldContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	require.NoError(t, atomicfile.WriteFile(path, content(1), 0o600))

	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	signal.Ignore(unix.SIGXFSZ)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1000, Max: before.Max}))
	err := atomicfile.WriteFile(path, content(2), 0o600)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
	signal.Reset(unix.SIGXFSZ)

	require.ErrorIs(t, err, unix.EFBIG)
	assert.Equal(t, 1, readVersion(t, path))
	assert.Equal(t, []string{"state"}, listNames(t, dir))
}

// WriteFile fails in a directory in which no files can be created.
func TestReadOnlyDirectoryIsError(t *testing.T) {
	require.ErrorContains(t, atomicfile.WriteFile("/proc/nodeagent", nil, 0o600), "replace /proc/nodeagent: ")
}
