// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certstore

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With these variables in its environment, the test binary updates a store and is killed before an operation.
const (
	envDir  = "CERT_TEST_DIR"
	envStep = "CERT_TEST_STEP"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(envDir)
	if dir == "" {
		runtime.GOMAXPROCS(1) // for the race detector with synctest (golang/go#78156)
		os.Exit(m.Run())
	}
	last, err := strconv.Atoi(os.Getenv(envStep))
	if err == nil {
		err = updateUntilKilled(dir, last)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// updateUntilKilled updates a store, and kills this process before operation number last.
func updateUntilKilled(dir string, last int) error {
	store, err := Open(Options{Dir: dir, Prefix: ClientPrefix})
	if err != nil {
		return err
	}
	n := 0
	store.beforeStep = func(string) {
		if n == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		n++
	}
	cert, key, err := newCertificate(2)
	if err == nil {
		_, err = store.Update(cert, key)
	}
	return err
}

// newCertificate returns a certificate with this serial number and its key, both PEM.
func newCertificate(serial int64) (cert, key []byte, err error) {
	private, key, err := NewKey()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "system:node:n1"},
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(nil, template, template, private.Public(), private)
	return pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: der}), key, err
}

// updateOperations returns the operations of an update that replaces a certificate and removes files of a killed process.
func updateOperations() []string {
	return []string{
		"make directory", "create", "write", "write the rest", "sync", "remove updated", "link updated", "rename updated", "sync directory",
	}
}

// prepareStore creates a store as a killed process leaves it, with certificate 1 as the current one.
func prepareStore(t *testing.T, dir string) {
	t.Helper()
	store, err := Open(Options{Dir: dir, Prefix: ClientPrefix})
	require.NoError(t, err)
	cert, key, err := newCertificate(1)
	require.NoError(t, err)
	_, err = store.Update(cert, key)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(dir, "nowhere"), store.updatedPath()))
}

// checkStore opens the store again, expects certificate want to be current, and updates the store.
func checkStore(t *testing.T, dir string, want int64) {
	t.Helper()
	store, err := Open(Options{Dir: dir, Prefix: ClientPrefix})
	require.NoError(t, err)
	pair, err := store.Current()
	require.NoError(t, err)
	assert.Equal(t, want, pair.Leaf.SerialNumber.Int64())
	cert, key, err := newCertificate(3)
	require.NoError(t, err)
	_, err = store.Update(cert, key)
	require.NoError(t, err)
	pair, err = store.Current()
	require.NoError(t, err)
	assert.Equal(t, int64(3), pair.Leaf.SerialNumber.Int64())
	assert.NoFileExists(t, store.updatedPath())
}

// A process that is killed between any two operations leaves the complete old or the complete new certificate.
func TestUpdateSurvivesKill(t *testing.T) {
	for last, name := range append(updateOperations(), "nothing") {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepareStore(t, dir)
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), envDir+"="+dir, envStep+"="+strconv.Itoa(last))
			out, err := child.CombinedOutput()
			if name == "nothing" {
				assert.Equal(t, "<nil>\n", string(out), "an update has no further operations")
			} else {
				status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
				require.True(t, ok && status.Signal() == syscall.SIGKILL, "%v %s", err, out)
			}
			want := int64(1)
			if last > 7 {
				want = 2
			}
			checkStore(t, dir, want)
		})
	}
}

// interruption is the panic value that stops an update in this process.
type interruption struct{ operation string }

// The operations have this order, and an update may be interrupted before each of them.
func TestUpdateSurvivesInterruptionAtEachStep(t *testing.T) {
	for last := range updateOperations() {
		dir := t.TempDir()
		prepareStore(t, dir)
		store, err := Open(Options{Dir: dir, Prefix: ClientPrefix})
		require.NoError(t, err)
		var done []string
		store.beforeStep = func(operation string) {
			if len(done) == last {
				panic(interruption{operation})
			}
			done = append(done, operation)
		}
		func() {
			defer func() { assert.Equal(t, interruption{updateOperations()[last]}, recover()) }()
			cert, key, err := newCertificate(2)
			require.NoError(t, err)
			_, err = store.Update(cert, key)
			t.Errorf("the update continued: %v", err)
		}()
		assert.Equal(t, updateOperations()[:last], append([]string{}, done...))
		want := int64(1)
		if last > 7 {
			want = 2
		}
		checkStore(t, dir, want)
	}
}

// The kubelet removes the link to the current certificate before it renames the new link. If it is killed in between, there
// is no current link.
func TestOpenCompletesInterruptedUpdate(t *testing.T) {
	dir := t.TempDir()
	prepareStore(t, dir)
	store := &Store{opts: Options{Dir: dir, Prefix: ClientPrefix}}
	target, err := os.Readlink(store.CurrentPath())
	require.NoError(t, err)
	require.NoError(t, os.Remove(store.CurrentPath()))
	require.NoError(t, os.Remove(store.updatedPath()))
	require.NoError(t, os.Symlink(target, store.updatedPath()))
	checkStore(t, dir, 1)
}

// Files of other kinds in place of a store file neither block the store nor are read completely, and the error names the
// file.
func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(Options{Dir: dir, Prefix: ClientPrefix})
	require.NoError(t, err)
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, syscall.Mkfifo(path("pipe"), 0o600))
	require.NoError(t, os.WriteFile(path("huge"), nil, 0o600))
	require.NoError(t, os.Truncate(path("huge"), 1<<40))
	require.NoError(t, os.Mkdir(path("directory"), 0o700))
	require.NoError(t, os.WriteFile(path("empty"), nil, 0o600))
	require.NoError(t, os.Symlink(path("loop"), path("loop")))

	for target, want := range map[string]string{
		"pipe": "it is no regular file", "huge": "it is too large", "directory": "it is no regular file",
		"empty": "failed to find any PEM data", "loop": "too many levels of symbolic links",
	} {
		require.NoError(t, os.Symlink(path(target), store.CurrentPath()))
		_, err := store.Current()
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, dir)
		cert, key, err := newCertificate(1)
		require.NoError(t, err)
		_, err = store.Update(cert, key)
		require.NoError(t, err, "Update replaces the link, whatever its target is")
		_, err = store.Current()
		require.NoError(t, err)
		require.NoError(t, os.Remove(store.CurrentPath()))
	}

	for _, make := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, nil, 0o600) },
		func(path string) error { return os.Mkdir(path, 0o700) },
		func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		for _, name := range []string{store.CurrentPath(), store.updatedPath()} {
			require.NoError(t, make(name))
			cert, key, err := newCertificate(1)
			require.NoError(t, err)
			_, err = store.Update(cert, key)
			require.ErrorContains(t, err, "store certificate: "+name+" must be a symbolic link, and is ")
			require.NoError(t, os.Remove(name))
		}
	}

	require.NoError(t, os.WriteFile(store.updatedPath(), nil, 0o600))
	_, err = Open(Options{Dir: dir, Prefix: ClientPrefix})
	require.ErrorContains(t, err, store.updatedPath()+" must be a symbolic link, and is ")
}
