// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/device"
)

// Limits of the messages of a plugin, in bytes.
const (
	maxList     = 16 << 20  // of a list or GetPreferredAllocation: 65,536 devices with 200 bytes each
	maxResponse = 512 << 10 // of Allocate; a device.Allocator accepts 128 KiB
	maxSmall    = 16 << 10  // of GetDevicePluginOptions and PreStartContainer
	maxText     = 1 << 10   // of an error
)

// Limits of the concurrent calls of one plugin. Further calls wait, so that the requests and responses of many pods need little memory.
const (
	maxPreferredCalls = 2 // of GetPreferredAllocation; a request may have the IDs of all devices
	maxAllocateCalls  = 16
)

// client calls one connected plugin.
type client struct {
	socket    string
	conn      *grpc.ClientConn
	api       api.DevicePluginClient
	options   device.PluginOptions
	preferred chan struct{} // one value per running GetPreferredAllocation
	allocates chan struct{} // one value per running Allocate
	closed    atomic.Bool
}

var _ device.Plugin = (*client)(nil)

// newClient returns a client for the plugin at conn. It calls GetDevicePluginOptions. After an error, conn stays open.
func newClient(ctx context.Context, conn *grpc.ClientConn, socket string) (*client, error) {
	c := &client{
		socket: socket, conn: conn, api: api.NewDevicePluginClient(conn),
		preferred: make(chan struct{}, maxPreferredCalls), allocates: make(chan struct{}, maxAllocateCalls),
	}
	ctx, cancel := context.WithTimeout(ctx, optionsTimeout)
	defer cancel()
	options, err := c.api.GetDevicePluginOptions(ctx, &api.Empty{}, grpc.MaxCallRecvMsgSize(maxSmall))
	if err != nil {
		return nil, wrapCallError(ctx, "failed to get device plugin options: ", err) // the kubelet's text
	}
	c.options = device.PluginOptions{PreStart: options.GetPreStartRequired(), Preferred: options.GetGetPreferredAllocationAvailable()}
	return c, nil
}

// close closes the connection. Later calls fail.
func (c *client) close() {
	c.closed.Store(true)
	_ = c.conn.Close()
}

// checkOpen returns an error if close was called. Source: errEndpointStopped in pkg/kubelet/cm/devicemanager/types.go.
func (c *client) checkOpen() error {
	if c.closed.Load() {
		return fmt.Errorf("endpoint %s has been stopped", c.socket)
	}
	return nil
}

// Options returns the optional calls that the plugin requested in its response of GetDevicePluginOptions.
func (c *client) Options() device.PluginOptions { return c.options }

// Preferred calls GetPreferredAllocation. As in the kubelet, only the first container of the response counts, and a response without
// containers has no preference. Source: callGetPreferredAllocationIfAvailable in pkg/kubelet/cm/devicemanager/manager.go.
func (c *client) Preferred(ctx context.Context, open, chosen []string, count int) ([]string, error) {
	const prefix = "device plugin GetPreferredAllocation rpc failed with err: "
	if err := c.checkOpen(); err != nil {
		return nil, fmt.Errorf(prefix+"%w", err)
	}
	if count < 0 || count > math.MaxInt32 {
		return nil, fmt.Errorf("call GetPreferredAllocation: count %d is out of range", count)
	}
	if err := takeSlot(ctx, c.preferred); err != nil {
		return nil, wrapCallError(ctx, prefix, err)
	}
	defer func() { <-c.preferred }()
	request := &api.ContainerPreferredAllocationRequest{AvailableDeviceIDs: open, MustIncludeDeviceIDs: chosen, AllocationSize: int32(count)}
	response, err := c.api.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{
		ContainerRequests: []*api.ContainerPreferredAllocationRequest{request},
	})
	if err != nil {
		return nil, wrapCallError(ctx, prefix, err)
	}
	containers := response.GetContainerResponses()
	if len(containers) == 0 {
		return nil, nil
	}
	if ids := containers[0].GetDeviceIDs(); len(ids) <= device.MaxDevices {
		return ids, nil
	}
	return nil, fmt.Errorf("preferred allocation of device plugin %s: %d IDs, more than %d", c.socket, len(containers[0].GetDeviceIDs()), device.MaxDevices)
}

// Allocate calls Allocate for one container. The error of a response without containers is the kubelet's. Source: allocateContainerResources
// in pkg/kubelet/cm/devicemanager/manager.go.
func (c *client) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	if err := c.checkOpen(); err != nil {
		return device.Response{}, err
	}
	if err := takeSlot(ctx, c.allocates); err != nil {
		return device.Response{}, wrapCallError(ctx, "", err)
	}
	defer func() { <-c.allocates }()
	answer, err := c.api.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}},
		grpc.MaxCallRecvMsgSize(maxResponse))
	if err != nil {
		return device.Response{}, wrapCallError(ctx, c.allocatePrefix(err), err)
	}
	containers := answer.GetContainerResponses()
	switch len(containers) {
	case 0:
		return device.Response{}, errors.New(shortenText(fmt.Sprintf("no containers return in allocation response %v", answer)))
	case 1:
	default:
		return device.Response{}, fmt.Errorf("allocation response of device plugin %s has %d containers, not 1", c.socket, len(containers))
	}
	response, err := convertResponse(containers[0])
	if err != nil {
		return device.Response{}, fmt.Errorf("allocation response of device plugin %s: %w", c.socket, err)
	}
	return response, nil
}

// allocatePrefix returns the start of an error of Allocate. It names the socket if gRPC has rejected the response. Errors of the plugin have no
// prefix, as in the kubelet.
func (c *client) allocatePrefix(err error) string {
	text := status.Convert(err).Message()
	if strings.HasPrefix(text, "grpc: received message") || strings.HasPrefix(text, "cardinality violation") {
		return fmt.Sprintf("allocation response of device plugin %s: ", c.socket)
	}
	return ""
}

// PreStart calls PreStartContainer. Source: callPreStartContainerIfNeeded in pkg/kubelet/cm/devicemanager/manager.go.
func (c *client) PreStart(ctx context.Context, ids []string) error {
	const prefix = "device plugin PreStartContainer rpc failed with err: "
	if err := c.checkOpen(); err != nil {
		return fmt.Errorf(prefix+"%w", err)
	}
	_, err := c.api.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: ids}, grpc.MaxCallRecvMsgSize(maxSmall))
	if err != nil {
		return wrapCallError(ctx, prefix, err)
	}
	return nil
}

// takeSlot waits for a free slot of a call, which the caller releases. It returns a gRPC error if ctx ends first.
func takeSlot(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// callError is the error of a call to a plugin.
type callError struct {
	prefix string
	err    error // gRPC error, at most maxText bytes of text
	ctxErr error // error of the context of the call; nil: it has not ended
}

// Error returns the kubelet's text.
func (e *callError) Error() string { return e.prefix + e.err.Error() }

// Unwrap returns the gRPC error, and the error of the context if it has ended.
func (e *callError) Unwrap() []error {
	if e.ctxErr == nil {
		return []error{e.err}
	}
	return []error{e.err, e.ctxErr}
}

// wrapCallError returns err of a gRPC call with prefix and shortened text. After the deadline, the result wraps [context.DeadlineExceeded], even if
// the plugin has reported the deadline first.
func wrapCallError(ctx context.Context, prefix string, err error) error {
	e := &callError{prefix: prefix, err: shortenError(err), ctxErr: ctx.Err()}
	if e.ctxErr == nil && status.Code(err) == codes.DeadlineExceeded {
		e.ctxErr = context.DeadlineExceeded
	}
	return e
}

// shortenError returns an error with the gRPC code of err and its shortened text. An error that is not from gRPC is returned unchanged.
func shortenError(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	return status.Error(s.Code(), shortenText(s.Message()))
}

// shortenText cuts text to maxText bytes.
func shortenText(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}
