"""Labelled machines, written without having read a rule.

A small event-driven simulator of computers on which programs run: cores that threads share, disks
and networks with latency, devices that execute what is launched, queues, barriers. What a program
is slow by follows from what it does; nothing here draws a symptom. The programs are taken from
their documentation and from papers: data stalls (Mohan et al., 2021; tf.data, Murray et al.,
2021), stragglers and spinning collectives (MegaScale, 2024; NCCL's documentation), checkpoints
(CheckFreq, 2021), pipeline bubbles (GPipe, 2019), actors and learners (IMPALA, 2018; Sample
Factory, 2020), servers with Poisson arrivals (vLLM, 2023), jobs of clusters (Jeon et al., 2019).
"""
