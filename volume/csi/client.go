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

// CallError is the error of a gRPC call to a CSI driver.
type CallError struct {
	Driver, Method string // Method is an RPC such as NodePublishVolume
	Err            error  // gRPC error, without secrets, at most 1 KiB of text

	ctxErr error // error of the context of the call; nil: it has not ended
}

// Error returns "METHOD of CSI driver DRIVER: " and the cause.
func (e *CallError) Error() string {
	return fmt.Sprintf("%s of CSI driver %s: %v", e.Method, e.Driver, e.Err)
}

// Unwrap returns Err. If the context of the call has ended, Unwrap also returns the error of the context, so that errors.Is
// finds it: the gRPC error does not wrap it.
func (e *CallError) Unwrap() []error {
	if e.ctxErr == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.ctxErr}
}

// Code returns the name of the gRPC code of the error, such as "DeadlineExceeded". It returns "Unknown" if Err is not a gRPC
// error.
func (e *CallError) Code() string { return status.Code(e.Err).String() }

// isFinal reports whether the driver has certainly rejected the call without an effect.
func (e *CallError) isFinal() bool {
	s, ok := status.FromError(e.Err)
	if !ok {
		return false // unknown whether the call has reached the driver
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// Capabilities of a CSI node service that this package uses.
const (
	canStage        = csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	canExpand       = csi.NodeServiceCapability_RPC_EXPAND_VOLUME
	canMeasure      = csi.NodeServiceCapability_RPC_GET_VOLUME_STATS
	canReportHealth = csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH
	canMultiWriter  = csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
	canMountGroup   = csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
)

// capabilities is the set of capabilities of the node service of a driver.
type capabilities map[csi.NodeServiceCapability_RPC_Type]bool

// client is a connection to one driver for one operation. The function that requested it closes it.
type client struct {
	p      *Plugin
	driver string
	conn   *grpc.ClientConn
	node   csi.NodeClient
}

// connectDriver connects to the registered driver with this name. The caller must close the client.
func (p *Plugin) connectDriver(ctx context.Context, driver string) (*client, error) {
	d, ok := p.drivers.findDriver(driver)
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

// invoke calls a method of the driver and then Hooks.CallCompleted. Its error is a [CallError] without the secrets in hide.
func invoke[Q, A any](ctx context.Context, conn *client, method string, rpc func(context.Context, Q, ...grpc.CallOption) (A, error), request Q, hide ...string) (A, error) {
	began := time.Now()
	answer, err := rpc(ctx, request)
	if err != nil {
		err = &CallError{Driver: conn.driver, Method: method, Err: sanitizeError(err, hide), ctxErr: ctx.Err()}
	}
	if hook := conn.p.opts.Hooks.CallCompleted; hook != nil {
		hook(conn.driver, method, time.Since(began), err)
	}
	return answer, err
}

// Limits for errors of drivers.
const (
	maxError  = 1 << 10
	minSecret = 3 // bytes; shorter values are not replaced, because they would match anywhere
)

// sanitizeError returns an error with the gRPC code and the text of err. The secrets in hide are replaced in the text by
// [sanitizeText].
func sanitizeError(err error, hide []string) error {
	s, ok := status.FromError(err)
	if !ok {
		return errors.New(sanitizeText(err.Error(), hide))
	}
	return status.Error(s.Code(), sanitizeText(s.Message(), hide))
}

// sanitizeText replaces each secret in the text by "[secret]", and cuts the result to maxError bytes. hide contains the
// secrets.
func sanitizeText(text string, hide []string) string {
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

// getCapabilities requests the capabilities of the driver's node service with NodeGetCapabilities.
func (c *client) getCapabilities(ctx context.Context) (capabilities, error) {
	answer, err := invoke(ctx, c, "NodeGetCapabilities", c.node.NodeGetCapabilities, &csi.NodeGetCapabilitiesRequest{})
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
