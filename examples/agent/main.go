// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Agent runs the pods of a node, as a kubelet does: it is package agent with flags. When it stops, the pods continue.
//
// Build it with -tags=grpcnotrace: the traces of gRPC, which the agent does not serve, use text/template, for which the linker keeps all
// methods of all types. That is 4.9 MB of a program of 36 MB.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/internal/changeover"
)

func main() {
	process.Main() // returns at once unless this program was started as a shim
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "check" {
		os.Exit(check(ctx, os.Args[2:]))
	}
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// check prints the effect on each pod if this agent takes the place of the kubelet on the node, and returns the exit code. It changes nothing.
func check(ctx context.Context, args []string) (code int) {
	format, args, err := changeover.CutFormat(args)
	if err == nil {
		code, err = changeover.Check(ctx, format, func() (agent.Config, error) { return parseFlags(args) }, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent: check:", err)
		return changeover.ExitUnread
	}
	return code
}

func run(ctx context.Context, args []string) error {
	config, err := parseFlags(args)
	if err != nil {
		return err
	}
	a, err := agent.New(ctx, config, agent.Options{OwnProcess: true})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// parseFlags parses the flags and the configuration file that they name. Flags take precedence over the file.
func parseFlags(args []string) (config agent.Config, err error) {
	var file, node, endpoint, manifests, kubeconfig, bootstrap, root string
	f := flag.NewFlagSet("agent", flag.ExitOnError)
	f.StringVar(&file, "config", "", "YAML `file` of a KubeletConfiguration and a NodeConfiguration, see agent.yaml")
	f.StringVar(&node, "hostname-override", "", "`name` of the node")
	f.StringVar(&endpoint, "container-runtime-endpoint", "", "`endpoint` of the container runtime (none: plain processes)")
	f.StringVar(&manifests, "pod-manifest-path", "", "`directory` of pod manifests, or a single file")
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig `file` of the API server")
	f.StringVar(&bootstrap, "bootstrap-kubeconfig", "", "kubeconfig `file` with a token that gets the first certificate")
	f.StringVar(&root, "root-dir", "", "`directory` of the agent's own files")
	_ = f.Parse(args) // it exits instead
	if f.NArg() > 0 {
		return config, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if file != "" {
		config, err = agent.LoadConfig(file) // with the fields that are supported
	}
	k, n := &config.Kubelet, &config.Node
	for _, flag := range []struct {
		field *string
		value string
	}{
		{&n.NodeName, node},
		{&n.RootDir, root},
		{&n.Kubeconfig, kubeconfig},
		{&n.BootstrapKubeconfig, bootstrap},
		{&k.ContainerRuntimeEndpoint, endpoint},
		{&k.StaticPodPath, manifests},
	} {
		*flag.field = cmp.Or(flag.value, *flag.field)
	}
	return config, err
}
