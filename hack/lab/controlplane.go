// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// controlPlaneLimit is the timeout of the commands up and down.
const controlPlaneLimit = controlplane.DefaultTimeout + 30*time.Second

// controlPlane runs the command `lab controlplane`.
func controlPlane(ctx context.Context, home string, args []string) error {
	dir := filepath.Join(home, "controlplane")
	if len(args) == 2 && args[0] == "node" {
		return nodeConfig(dir, args[1])
	}
	if len(args) != 1 {
		return errUsage
	}
	switch args[0] {
	case "up":
		return controlPlaneUp(ctx, dir)
	case "down":
		return controlPlaneDown(ctx, dir)
	case "status":
		return controlPlaneStatus(ctx, dir)
	case "serve":
		return controlplane.Serve(ctx, filepath.Join(home, "bin"), dir, controlplane.Options{ControllerManager: true, Scheduler: true})
	}
	return errUsage
}

// controlPlaneUp starts a process that serves a control plane, unless one runs, and waits until it is ready.
func controlPlaneUp(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, controlPlaneLimit)
	defer cancel()
	if _, err := controlplane.Open(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, controlPlaneStatus(ctx, dir))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "serve.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	began := time.Now()
	cmd := exec.Command(self, "controlplane", "serve") //nolint:noctx // it outlives this process
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if _, err := controlplane.Open(dir); err == nil {
			say("the control plane is ready after %v", time.Since(began).Round(10*time.Millisecond))
			return controlPlaneStatus(ctx, dir)
		}
		select {
		case err := <-ended:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("start control plane: %w: %s", err, strings.TrimSpace(string(text)))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("start control plane: %w, see %s", ctx.Err(), log.Name()), cmd.Process.Signal(syscall.SIGTERM))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// controlPlaneDown stops the control plane, if one runs, and removes its files.
func controlPlaneDown(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, controlPlaneLimit)
	defer cancel()
	s, err := controlplane.Open(dir)
	if err == nil {
		err = s.Stop(ctx)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// controlPlaneStatus prints the running parts, and how to use them.
func controlPlaneStatus(ctx context.Context, dir string) error {
	s, err := controlplane.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("no control plane")
		return nil
	}
	if err != nil {
		return err
	}
	admin, err := s.AdminKubeconfig()
	if err != nil {
		return err
	}
	state := "ready"
	if err := s.Admin().CheckReady(ctx); err != nil {
		state = err.Error()
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintf(out, "control plane\tKubernetes %s, %s\nserver\t%s\nkubeconfig\t%s\n", controlplane.Version, state, s.URL(), admin)
	fmt.Fprintf(out, "of a node\tlab controlplane node NAME\n")
	pids := s.PIDs()
	for _, name := range slices.Sorted(maps.Keys(pids)) {
		fmt.Fprintf(out, "%s\tpid %d, log %s\n", name, pids[name], s.LogPath(name))
	}
	fmt.Fprintf(out, "requests\t%s\n", s.AuditPath())
	return nil
}

// nodeConfig creates a kubeconfig for a node and prints its path.
func nodeConfig(dir, name string) error {
	s, err := controlplane.Open(dir)
	if err != nil {
		return err
	}
	path, err := s.NodeKubeconfig(name)
	if err == nil {
		fmt.Println(path)
	}
	return err
}
