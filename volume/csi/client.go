// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed81659283/nodeagent/internal/plugingrpc"
)

// CallError is the error of a call of a driver.
type CallError struct {
	Driver, Method string // such as NodePublishVolume
	Err            error  // of gRPC, without secrets and not too long

	ended error // of the context of the call; nil: it has not ended
}

// Error names method, driver and cause.
func (e *CallError) Error() string {
	return fmt.Sprintf("%s of CSI driver %s: %v", e.Method, e.Driver, e.Err)
}

// Unwrap returns the cause, and the error of the context of the call where that has ended: gRPC has only a code for it.
func (e *CallError) Unwrap() []error {
	if e.ended == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.ended}
}

// Code returns what gRPC calls the error, such as DeadlineExceeded; Unknown is also one that is none of gRPC.
func (e *CallError) Code() string { return status.Code(e.Err).String() }

// isFinal reports whether the call has certainly ended without effect. Where it has not, the driver may still be at it.
func (e *CallError) isFinal() bool {
	s, ok := status.FromError(e.Err)
	if !ok {
		return false // it may never have got to the driver
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// The capabilities that matter.
const (
	stages      = csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	expands     = csi.NodeServiceCapability_RPC_EXPAND_VOLUME
	measures    = csi.NodeServiceCapability_RPC_GET_VOLUME_STATS
	knowsHealth = csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH
	multiWriter = csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
	mountsGroup = csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
)

// capabilities are what the node service of a driver can do.
type capabilities map[csi.NodeServiceCapability_RPC_Type]bool

// client is a connection to a driver, for one operation.
type client struct {
	p      *Plugin
	driver string
	conn   *grpc.ClientConn
	node   csi.NodeClient
}

// open connects to a driver. One that is not registered may come.
func (p *Plugin) open(ctx context.Context, driver string) (*client, error) {
	d, ok := p.drivers.get(driver)
	if !ok {
		return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", driver)
	}
	conn, err := plugingrpc.Connect(ctx, d.plugin.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver %s: %w", driver, err)
	}
	return &client{p: p, driver: driver, conn: conn, node: csi.NewNodeClient(conn)}, nil
}

func (c *client) close() { _ = c.conn.Close() }

// call makes one call of a driver. What is to be hidden is not in its error.
func call[Q, A any](ctx context.Context, c *client, method string, rpc func(context.Context, Q, ...grpc.CallOption) (A, error), request Q, hide ...string) (A, error) {
	began := time.Now()
	answer, err := rpc(ctx, request)
	if err != nil {
		err = &CallError{Driver: c.driver, Method: method, Err: clean(err, hide), ended: ctx.Err()}
	}
	if hook := c.p.opts.Hooks.Call; hook != nil {
		hook(c.driver, method, time.Since(began), err)
	}
	return answer, err
}

// The bounds of what is repeated of an error of a driver.
const (
	maxError  = 1 << 10
	minSecret = 3 // bytes; a shorter one would be in every text
)

// clean returns an error of gRPC with its code, cut to a length, and without what is to be hidden.
func clean(err error, hide []string) error {
	s, ok := status.FromError(err)
	if !ok {
		return errors.New(cut(err.Error(), hide))
	}
	return status.Error(s.Code(), cut(s.Message(), hide))
}

func cut(text string, hide []string) string {
	for _, value := range hide {
		if len(value) >= minSecret {
			text = strings.ReplaceAll(text, value, "[secret]")
		}
	}
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "..."
	}
	return text
}

// capabilities asks what the driver can do.
func (c *client) capabilities(ctx context.Context) (capabilities, error) {
	answer, err := call(ctx, c, "NodeGetCapabilities", c.node.NodeGetCapabilities, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, err
	}
	can := capabilities{}
	for _, capability := range answer.GetCapabilities() {
		if rpc := capability.GetRpc(); rpc != nil {
			can[rpc.GetType()] = true
		}
	}
	return can, nil
}
