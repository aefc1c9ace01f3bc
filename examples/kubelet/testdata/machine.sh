#!/bin/bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# Process 1 of a machine for kubeadm, in namespaces of its own: machine.sh NAME DIR BIN KUBELET SOURCE
#   NAME     host name
#   DIR      empty directory, on which the machine mounts a tmpfs with all its files
#   BIN      directory of the programs that make lab and make cluster-tools have built
#   KUBELET  program that is installed as /usr/bin/kubelet
#   SOURCE   directory of this example
# The root directory is an overlay on that of the host. /mnt has the files that the machine has written.
set -eu
name=$1 dir=$2 bin=$3 kubelet=$4 source=$5

hostname "$name"
mount --make-rprivate /
mount -t tmpfs -o mode=755 machine "$dir"
mkdir "$dir/upper" "$dir/work" "$dir/root" "$dir/containerd"
mount -t overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" machine "$dir/root"
cd "$dir/root"

rm -rf etc/cni etc/kubernetes opt/cni var/lib/cni var/lib/etcd var/lib/kubelet # hides those of the host
install -D "$kubelet" usr/bin/kubelet
install -D "$source/testdata/systemctl" usr/local/bin/systemctl
install -D -m 644 "$source/systemd/kubelet.service" usr/lib/systemd/system/kubelet.service
install -D -m 644 "$source/systemd/kubelet.service.d/10-kubeadm.conf" usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
mkdir -p opt/cni/bin var/lib/containerd etc/containerd
mount --bind "$bin" opt/cni/bin
for program in containerd containerd-shim-runc-v2 crictl ctr kubeadm kubectl runc; do
	ln -s "/opt/cni/bin/$program" "usr/local/bin/$program"
done
mount --bind "$dir/containerd" var/lib/containerd # not on the overlay, which cannot contain the snapshots
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp

# The same hierarchies as on the host, from the cgroup of this machine.
mount -t tmpfs -o mode=755 cgroup sys/fs/cgroup
while IFS=: read -r _ controllers _; do
	case $controllers in
	name=*) mkdir "sys/fs/cgroup/${controllers#name=}" && mount -t cgroup -o "none,$controllers" cgroup "sys/fs/cgroup/${controllers#name=}" ;;
	?*) mkdir "sys/fs/cgroup/$controllers" && mount -t cgroup -o "$controllers" cgroup "sys/fs/cgroup/$controllers" ;;
	esac
done </proc/self/cgroup
mkdir -p sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 sys/fs/cgroup/unified

mount --bind "$dir/upper" mnt
mkdir run/old
pivot_root . run/old
umount --lazy /run/old && rmdir /run/old
mount --make-rshared / # as systemd does

export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
cat >/etc/containerd/config.toml <<TOML
version = 4
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'registry.k8s.io/pause:3.10.2'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
TOML
containerd >/var/log/containerd.log 2>&1 &
for ((i = 0; i < 600; i++)); do
	if crictl --runtime-endpoint unix:///run/containerd/containerd.sock version >/dev/null 2>&1; then
		echo "machine $name is ready"
		break
	fi
	sleep 0.1
done
# Bash reaps the processes of exited parents while it waits.
while :; do sleep 1000 & wait $!; done
