// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/seed81659283/nodeagent/probe/grpcprobe"
)

func ExampleNew() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server, service := grpc.NewServer(), health.NewServer()
	service.SetServingStatus("backup", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(server, service)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, name := range []string{"", "backup"} {
		p, err := grpcprobe.New(grpcprobe.Config{
			Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, Service: name,
		})
		if err != nil {
			log.Fatal(err)
		}
		result, err := p.Probe(ctx)
		fmt.Println(result.Outcome, result.Output, err)
		_ = p.Close()
	}
	// Output:
	// success service healthy <nil>
	// failure service unhealthy (responded with "NOT_SERVING") <nil>
}
