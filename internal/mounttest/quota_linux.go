// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mounttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mountQuotaFS(t testing.TB) (root string, enforced bool) {
	t.Helper()
	dir := t.TempDir()
	image, root := filepath.Join(dir, "image"), filepath.Join(dir, "root")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := run("mkfs.ext4", "-q", "-O", "project,quota", "-E", "quotatype=prjquota", image); err != nil {
		t.Skipf("no ext4 with quotas can be made: %v: %s", err, out)
	}
	mounted, err := run("mount", "-o", "loop,prjquota", image, root)
	if enforced = err == nil; !enforced {
		t.Logf("no project quotas: %v: %s", err, mounted)
		if out, err := run("mkfs.ext4", "-q", "-F", image); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if out, err := run("mount", "-o", "loop", image, root); err != nil {
			t.Skipf("no loop device can be mounted: %v: %s", err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, 0); err != nil {
			t.Errorf("something holds the file system: %v", err)
			_ = unix.Unmount(root, unix.MNT_DETACH)
		}
	})
	return root, enforced
}

func writeLimited(t testing.TB, path string, bytes int) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "setpriv", "--bounding-set", "-sys_resource", "dd", "if=/dev/zero", "of="+path, "bs=4096", "conv=fsync", "count="+strconv.Itoa(bytes/4096))
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	for _, errno := range []unix.Errno{unix.EDQUOT, unix.ENOSPC} {
		if err != nil && strings.Contains(strings.ToLower(string(out)), errno.Error()) {
			return errno
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
