// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package sanity_test runs csi-test of Kubernetes against the driver of loop devices, which the tests of volume/csi use. It
// is a separate module, because only it needs the dependencies of csi-test.
package sanity_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
)

// Sizes of volumes in bytes.
const (
	size     = 16 << 20
	expanded = 32 << 20
)

func TestSanity(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices and mounts need root")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	build := exec.Command("go", "build", "-buildvcs=false", "-o", at("csidriver"), ".")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the driver: %v\n%s", err, out)
	}
	start(t, at("csidriver"), "-endpoint", at("csi.sock"), "-data", at("data"))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(at("csi.sock")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the driver does not listen")
		}
	}
	c := sanity.NewTestConfig()
	c.Address = at("csi.sock")
	c.TargetPath, c.StagingPath = at("target"), at("staging")
	c.TestVolumeSize, c.TestVolumeExpandSize = size, expanded
	sanity.Test(t, c)
}

// start runs the driver in its own mount namespace, and at the end of the test detaches its loop devices.
func start(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && strings.HasPrefix(string(text), filepath.Dir(name)) {
				t.Errorf("loop device is still attached: %s", text)
				_ = exec.Command("losetup", "-d", "/dev/"+strings.Split(file, "/")[3]).Run()
			}
		}
	})
}
