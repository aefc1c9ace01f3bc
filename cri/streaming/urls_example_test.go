// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// A runtime that runs sessions itself, here a scripted one, gets URLs at which its commands are run.
func ExampleServer_Serve() {
	sessions, err := streaming.New(streaming.Options{Runner: &streamtest.Runtime{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	urls := streaming.NewURLServer(sessions, streaming.URLOptions{})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var serving sync.WaitGroup
	serving.Go(func() { fmt.Println("served:", urls.Serve(ctx, l)) })

	var url string
	for url == "" { // Serve begins a moment later
		url, _ = urls.Exec(ctx, "container", []string{"out=hello"}, cri.StreamOptions{Stdout: true})
	}
	_, err = streamtest.Command{URL: url, Protocol: "SPDY v4.channel.k8s.io", Stdout: os.Stdout}.Run(ctx)
	fmt.Println("\nrun:", err)
	stop()
	serving.Wait()
	// Output:
	// hello
	// run: <nil>
	// served: <nil>
}
