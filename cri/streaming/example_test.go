// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// An agent with an HTTP API of its own serves kubectl exec and port-forward of a runtime.
func ExampleServer() {
	server, err := streaming.New(streaming.Options{
		Runner: &streamtest.Runtime{}, // or Streamer, for example a *remote.Client
		Hooks: streaming.Hooks{SessionFinished: func(s streaming.Session, err error) {
			fmt.Printf("%s of %s: %s\n", s.Kind, s.Target.ID, sessionOutcome(err))
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux() // behind authentication and authorization
	mux.HandleFunc("/exec/{container}", func(w http.ResponseWriter, r *http.Request) {
		o, err := streaming.ParseStreams(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		server.ServeExec(w, r, r.PathValue("container"), r.URL.Query()["command"], o)
	})
	mux.HandleFunc("/portforward/{sandbox}", func(w http.ResponseWriter, r *http.Request) {
		ports, err := streaming.ParsePorts(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		server.ServePortForward(w, r, r.PathValue("sandbox"), ports)
	})
	node := httptest.NewServer(mux)
	defer node.Close()

	ctx := context.Background()
	url := node.URL + "/exec/web?output=1&command=out%3Dhello%0A" // the command of this runtime prints hello
	_, err = streamtest.Command{URL: url, Protocol: "SPDY v4.channel.k8s.io", Stdout: os.Stdout}.Run(ctx)
	server.CloseSessions("web", "the container has exited") // no session is running
	server.Shutdown(ctx)                                    // waits for the sessions and refuses new ones
	fmt.Println(err)
	// Output:
	// hello
	// exec of web: completed
	// <nil>
}

// sessionOutcome returns the label that an agent counts a session with.
func sessionOutcome(err error) string {
	switch {
	case err == nil:
		return "completed"
	case errors.Is(err, streaming.ErrIdleTimeout), errors.Is(err, streaming.ErrStallTimeout):
		return "timed out"
	case errors.Is(err, streaming.ErrSessionClosed), errors.Is(err, streaming.ErrShutdown):
		return "ended by the node"
	case errors.Is(err, streaming.ErrLimit):
		return "refused"
	}
	return "failed"
}

// A runtime that runs sessions itself, here one in memory, gets URLs at which its commands are run: package criserver returns them
// to clients of CRI.
func ExampleURLServer() {
	runtime := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
		return critest.Script{Session: func(_ context.Context, cmd []string, s cri.Session) (int, error) {
			_, err := fmt.Fprintln(s.Stdout, cmd)
			return 0, err
		}}
	}})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pod := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "1", Name: "web"}}
	sandbox, _ := runtime.RunSandbox(ctx, pod)
	id, _ := runtime.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "app"}, pod)
	_ = runtime.StartContainer(ctx, id)

	sessions, err := streaming.New(streaming.Options{Runner: runtime})
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
	var serving sync.WaitGroup
	serving.Go(func() { fmt.Println("served:", urls.Serve(ctx, l)) })

	var url string
	for url == "" { // until Serve has started
		url, _ = urls.Exec(ctx, id, []string{"date"}, cri.StreamOptions{Stdout: true})
	}
	_, err = streamtest.Command{URL: url, Protocol: "SPDY v4.channel.k8s.io", Stdout: os.Stdout}.Run(ctx)
	fmt.Println("run:", err)
	stop()
	serving.Wait()
	// Output:
	// [date]
	// run: <nil>
	// served: <nil>
}
