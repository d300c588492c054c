//go:build linux

package slurm

import (
	"fmt"
	"syscall"
	"testing"
)

// config returns slurm.conf for a single node: no cgroups, no accounting, and a scheduler that runs
// every second. Credentials expire soon, because a requeued job waits for that.
func (c *Cluster) config(t testing.TB, host string, cpus int) string {
	t.Helper()
	ports := freePorts(t, 2)
	return fmt.Sprintf(`ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[2]d
SlurmdPort=%[3]d
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[4]s/munge.socket,cred_expire=5
StateSaveLocation=%[4]s/state
SlurmdSpoolDir=%[4]s/spool
SlurmctldPidFile=%[4]s/slurmctld.pid
SlurmdPidFile=%[4]s/slurmd.pid
SlurmctldLogFile=%[4]s/slurmctld.log
SlurmdLogFile=%[4]s/slurmd.log
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
KillWait=5
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=%[5]d State=UNKNOWN
PartitionName=all Nodes=%[1]s Default=YES State=UP
`, host, ports[0], ports[1], c.dir, cpus)
}

// freePorts returns n different unused ports.
func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		socket, _ := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0) // Listen fails without it
		defer syscall.Close(socket)
		unbound := syscall.Listen(socket, 1)
		address, unnamed := syscall.Getsockname(socket)
		if unbound != nil || unnamed != nil {
			t.Fatal(unbound, unnamed)
		}
		ports = append(ports, address.(*syscall.SockaddrInet4).Port)
	}
	return ports
}
