// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command lab prepares and runs the containerd that the tests use, and a control plane for people. `make lab` and `make test` call
// it; packages internal/lab and internal/controlplane describe them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/seed81659283/nodeagent/internal/lab"
)

const usage = `usage: lab COMMAND
  deps [PKG...]    install the Debian packages that are missing, of those named or of all (root)
  tools            build the tools of tools/go.mod into .lab/bin, crictl and critest of tools/cri/go.mod, and the test images into
                   .lab/images
  lint-tools       build the tools of tools/lint/go.mod into .lab/bin
  cluster-tools    build the control plane that tools/cluster/go.mod pins into .lab/bin, and its images into .lab/images,
                   the CoreDNS of tools/dns/go.mod, and the metrics-server of tools/metrics/go.mod
  up               start the lab, or find it running
  status           say what runs
  restart          kill -9 containerd and start it again on the same state
  down             stop the lab and remove all that it made but the tools
  exec CMD ARG...  up, run the command with ` + lab.RequiredEnv + `=required, down
  controlplane up|down|status
                   a control plane of what cluster-tools has built, for people: etcd, API server, scheduler, controller manager
  controlplane node NAME
                   write a kubeconfig for the node of that name, and print its path
  watch NAME       end a lab that was started on demand when its last user has gone
`

var errUsage = errors.New("no such command")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	if ended, ok := err.(*exec.ExitError); ok { //nolint:errorlint // only the unwrapped one is that of exec's command, which has said why
		os.Exit(max(1, ended.ExitCode()))
	}
	if errors.Is(err, errUsage) {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	home, err := lab.FindHome()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	switch args[0] {
	case "deps":
		if len(args) > 1 {
			return installPackages(ctx, args[1:])
		}
		return installPackages(ctx, packages)
	case "tools":
		return errors.Join(
			toolset{folder: "tools", tags: toolTags}.build(ctx, home),
			toolset{folder: "tools/cri", static: true, test: "sigs.k8s.io/cri-tools/cmd/critest"}.build(ctx, home),
			buildImages(ctx, home))
	case "lint-tools":
		return toolset{folder: "tools/lint", tags: toolTags}.build(ctx, home)
	case "cluster-tools":
		return buildCluster(ctx, home)
	case "up":
		return up(ctx, home)
	case "status":
		return status(ctx, home)
	case "restart":
		l, err := lab.Open(home, lab.MainName)
		if err != nil {
			return err
		}
		return l.Restart(ctx)
	case "down":
		return lab.DownAll(ctx, home)
	case "controlplane":
		return controlPlane(ctx, home, args[1:])
	case "exec":
		return runWithLab(ctx, home, args[1:])
	case "watch":
		if len(args) != 2 {
			return errUsage
		}
		return lab.Watch(ctx, home, args[1])
	}
	return errUsage
}

func up(ctx context.Context, home string) error {
	began := time.Now()
	l, err := lab.Up(ctx, home, lab.MainName)
	if err != nil {
		return err
	}
	sayUp(l, began)
	return nil
}

func sayUp(l *lab.Lab, began time.Time) {
	say("containerd at %s after %v", l.Endpoint(), time.Since(began).Round(10*time.Millisecond))
}

func status(ctx context.Context, home string) error {
	names, err := lab.Instances(home)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		fmt.Println("no lab")
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	for _, name := range names {
		l, err := lab.Open(home, name)
		if errors.Is(err, fs.ErrNotExist) { // being created or removed
			continue
		}
		if err != nil {
			return err
		}
		state := "ready, empty"
		left, err := l.Leftovers(ctx)
		if err != nil {
			state = err.Error()
		} else if len(left) > 0 {
			state = "ready, with " + countKinds(left)
		}
		fmt.Fprintf(out, "lab\t%s\nstate\t%s\nendpoint\t%s\n", name, state, l.Endpoint())
		fmt.Fprintf(out, "containerd\tpid %d, log %s\n", l.ContainerdPID(), l.LogPath())
		fmt.Fprintf(out, "network\t%s on %s\n", l.Subnet(), l.Bridge())
		fmt.Fprintf(out, "images\t%s %s\n", lab.PauseImage, lab.BusyboxImage)
		fmt.Fprintf(out, "registry\t%s\n\t%s\n", l.RegistryImage(), l.RegistryImageByDigest())
	}
	return nil
}

// countKinds turns lines "kind name" into words "kind: number".
func countKinds(lines []string) string {
	numbers := map[string]int{}
	for _, line := range lines {
		kind, _, _ := strings.Cut(line, " ")
		numbers[kind]++
	}
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(numbers)) {
		words = append(words, fmt.Sprintf("%s: %d", kind, numbers[kind]))
	}
	return strings.Join(words, ", ")
}

// runWithLab runs a command while the lab is up. Then it takes the lab down, unless the lab was up before or is in use by
// other processes. It prints nothing after the command, whose last lines the caller reads.
func runWithLab(ctx context.Context, home string, args []string) (err error) {
	if len(args) == 0 {
		return errUsage
	}
	began := time.Now()
	l, release, err := lab.Use(ctx, home)
	if err != nil {
		return err
	}
	defer func() {
		release()
		if downErr := lab.DownUnused(context.WithoutCancel(ctx), home); downErr != nil {
			err = errors.Join(err, downErr)
		}
	}()
	sayUp(l, began)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), lab.RequiredEnv+"=required")
	// The command gets its own process group, so that a signal to this process reaches all processes of `go test`.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	return cmd.Run()
}

// newCommand prepares a program whose output goes to standard error, like the messages of this program.
func newCommand(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd
}

func runCommand(cmd *exec.Cmd) error {
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s in %s: %w", strings.Join(cmd.Args, " "), filepath.Clean(cmd.Dir), err)
	}
	return nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "lab: "+format+"\n", args...) }
